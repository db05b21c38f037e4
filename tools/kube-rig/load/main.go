// Command load sends requests to an API server as fast as it takes them, or at a given rate.
//
// Standard input holds one request per line: {"method": "POST", "path": "/api/v1/…", "body": {…}}. At the end one JSON
// object is written: seconds, how many were answered by which status, and, with --times, when each was sent and answered.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Request is one line of the input.
type Request struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
}

// Report is what is written at the end. Times are seconds since 1970, in the order of the input.
type Report struct {
	Seconds  float64        `json:"seconds"`
	Status   map[string]int `json:"status"`
	Failure  string         `json:"failure,omitempty"`
	Sent     []float64      `json:"sent,omitempty"`
	Answered []float64      `json:"answered,omitempty"`
}

func main() {
	server := flag.String("server", "", "address of the API server")
	authority := flag.String("ca", "", "file with its certificate")
	account := flag.String("token-file", "", "file with the bearer token")
	connections := flag.Int("connections", 32, "requests under way at once")
	rate := flag.Float64("rate", 0, "requests per second; 0 means as fast as they are taken")
	times := flag.Bool("times", false, "report when each request was sent and answered")
	flag.Parse()
	requests, err := read(os.Stdin)
	if err != nil {
		fail(err)
	}
	client, token, err := connect(*authority, *account, *connections)
	if err != nil {
		fail(err)
	}
	report := send(client, *server, token, requests, *connections, *rate)
	if !*times {
		report.Sent, report.Answered = nil, nil
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(2)
}

func read(in io.Reader) ([]Request, error) {
	var requests []Request
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), 16<<20)
	for lines.Scan() {
		var request Request
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(requests)+1, err)
		}
		requests = append(requests, request)
	}
	return requests, lines.Err()
}

func connect(authority, account string, connections int) (*http.Client, string, error) {
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return nil, "", err
	}
	token, err := os.ReadFile(account)
	if err != nil {
		return nil, "", err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return nil, "", fmt.Errorf("%s holds no certificate", authority)
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		MaxIdleConnsPerHost: connections,
		ForceAttemptHTTP2:   true,
	}
	return &http.Client{Transport: transport, Timeout: time.Minute}, strings.TrimSpace(string(token)), nil
}

func send(client *http.Client, server, token string, requests []Request, connections int, rate float64) Report {
	report := Report{
		Status:   map[string]int{},
		Sent:     make([]float64, len(requests)),
		Answered: make([]float64, len(requests)),
	}
	var lock sync.Mutex
	var group sync.WaitGroup
	queue := make(chan int)
	began := time.Now()
	for range connections {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range queue {
				report.Sent[i] = seconds(time.Now())
				status, failure := one(client, server, token, requests[i])
				report.Answered[i] = seconds(time.Now())
				lock.Lock()
				report.Status[status]++
				if failure != "" && report.Failure == "" {
					report.Failure = failure
				}
				lock.Unlock()
			}
		}()
	}
	for i := range requests {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		}
		queue <- i
	}
	close(queue)
	group.Wait()
	report.Seconds = time.Since(began).Seconds()
	return report
}

func one(client *http.Client, server, token string, asked Request) (string, string) {
	request, err := http.NewRequest(asked.Method, server+asked.Path, bytes.NewReader(asked.Body))
	if err != nil {
		return "none", err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := client.Do(request)
	if err != nil {
		return "none", err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 400 {
		return fmt.Sprint(answer.StatusCode), string(text)
	}
	return fmt.Sprint(answer.StatusCode), ""
}

func seconds(at time.Time) float64 {
	return float64(at.UnixNano()) / 1e9
}
