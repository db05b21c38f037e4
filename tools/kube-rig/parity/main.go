// Command parity answers, for each case on standard input, which nodes kube-scheduler's own default filters accept.
//
// One JSON object per line in, one per line out, in the same order. README.md beside describes both.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// A line may hold a cluster of some thousand nodes.
const longestLine = 256 << 20

// Case is one question: where may this pod go?
type Case struct {
	ID      json.RawMessage   `json:"id"`
	Pod     json.RawMessage   `json:"pod"`
	Nodes   []json.RawMessage `json:"nodes"`
	Pods    []json.RawMessage `json:"pods"`
	Objects []json.RawMessage `json:"objects"`
}

// Rejection names the first filter that turned a node down, and its words.
type Rejection struct {
	Plugin string `json:"plugin"`
	Reason string `json:"reason"`
}

// Answer lists the nodes that every filter accepts, in the order of the case, and why the others are not among them.
type Answer struct {
	ID       json.RawMessage      `json:"id"`
	Feasible []string             `json:"feasible"`
	Rejected map[string]Rejection `json:"rejected"`
	Error    string               `json:"error,omitempty"`
}

func main() {
	workers := flag.Int("workers", 8, "cases answered at once (cases with volumes mostly wait)")
	flag.Parse()
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	metrics.Register()
	if err := answerAll(context.Background(), os.Stdin, os.Stdout, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(2)
	}
}

// answerAll keeps the order of the answers by a queue of promises.
func answerAll(ctx context.Context, in io.Reader, out io.Writer, workers int) error {
	promises := make(chan chan Answer, workers)
	failed := make(chan error, 1)
	go func() {
		defer close(promises)
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 1<<20), longestLine)
		for lines.Scan() {
			line := append([]byte(nil), lines.Bytes()...)
			promise := make(chan Answer, 1)
			promises <- promise // waits while `workers` cases are open
			go func() { promise <- answerLine(ctx, line) }()
		}
		failed <- lines.Err()
	}()
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for promise := range promises {
		if err := encoder.Encode(<-promise); err != nil {
			return err
		}
		if len(promises) == 0 { // nobody waits behind this one: the reader may be waiting for it
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	return <-failed
}

func answerLine(ctx context.Context, line []byte) (answer Answer) {
	var asked Case
	if err := json.Unmarshal(line, &asked); err != nil {
		return Answer{Error: "not a case: " + err.Error()}
	}
	defer func() {
		if trouble := recover(); trouble != nil {
			fmt.Fprintf(os.Stderr, "parity: %v\n%s", trouble, debug.Stack())
			answer = Answer{ID: asked.ID, Error: fmt.Sprint("a filter panicked: ", trouble)}
		}
	}()
	cluster, err := decode(asked)
	if err != nil {
		return Answer{ID: asked.ID, Error: err.Error()}
	}
	answer, err = cluster.ask(ctx)
	if err != nil {
		answer.Error = err.Error()
	}
	answer.ID = asked.ID
	return answer
}
