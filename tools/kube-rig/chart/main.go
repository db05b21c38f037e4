// Renders a chart's templates as Helm would, as far as they use only Go's own template language:
// chart VALUES.json TEMPLATE... writes all documents, separated by lines of dashes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/template"
)

func main() {
	var data map[string]any
	if err := json.Unmarshal([]byte(os.Args[1]), &data); err != nil {
		panic(err)
	}
	for _, path := range os.Args[2:] {
		text, err := os.ReadFile(path)
		if err != nil {
			panic(err)
		}
		made := template.Must(template.New(path).Option("missingkey=error").Parse(string(text)))
		fmt.Println("---")
		if err := made.Execute(os.Stdout, data); err != nil {
			panic(err)
		}
	}
}
