// Page prints docs/benchmarks.md from the figures of make bench: `page docs/benchmarks.json`.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

//go:embed page.md
var text string

type figure struct {
	Table, Row, Column string
	Median, Min, Max   float64
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = write(os.Stdout, data)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(w io.Writer, data []byte) error {
	var in struct {
		Machine, Go, Load, Date string
		Processors              int
		Figures                 []figure
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\nMeasured on %s with %d processors, %s, %s, load %s at the end.\n",
		text, in.Date, in.Processors, in.Machine, in.Go, in.Load)
	for _, name := range distinct(in.Figures, func(f figure) string { return f.Table }) {
		of := slices.DeleteFunc(slices.Clone(in.Figures), func(f figure) bool {
			return f.Table != name
		})
		columns := distinct(of, func(f figure) string { return f.Column })
		fmt.Fprintf(w, "\n## %s\n\n| | %s |\n|%s\n", name, strings.Join(columns, " | "),
			strings.Repeat("---|", len(columns)+1))
		for _, row := range distinct(of, func(f figure) string { return f.Row }) {
			fmt.Fprintf(w, "| %s |", row)
			for _, column := range columns {
				at := slices.IndexFunc(of, func(f figure) bool {
					return f.Row == row && f.Column == column
				})
				if at < 0 {
					fmt.Fprint(w, " |")
					continue
				}
				f := of[at]
				fmt.Fprintf(w, " **%s** (%s–%s) |", short(f.Median), short(f.Min), short(f.Max))
			}
			fmt.Fprintln(w)
		}
	}
	return nil
}

// short is a number with as many digits as a reader needs.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func distinct(of []figure, by func(figure) string) (names []string) {
	for _, f := range of {
		if !slices.Contains(names, by(f)) {
			names = append(names, by(f))
		}
	}
	return names
}
