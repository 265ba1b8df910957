package figures

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Sample is one raw sample.
type Sample struct {
	Bench string // name with its keys, as in bench.txt
	Mode  string
	Run   string
	Value float64
	Unit  string
	// Kernel and Accelerator are "" in a folder of one setting.
	Kernel, Accelerator string
}

// Gap is what one client saw at one time while kube-proxy changed its mode.
type Gap struct {
	Pair     string // "ipvs->nftables"
	Services int
	Run      string
	Client   string
	AtMs     float64 // since the change began
	Outcome  string
}

func readSamples(name string) (samples []Sample, err error) {
	err = readTable(name, []string{"bench", "mode", "run", "value", "unit"}, func(field func(string) string) error {
		value, err := strconv.ParseFloat(field("value"), 64)
		if err != nil {
			return fmt.Errorf("value %q is no number", field("value"))
		}
		samples = append(samples, Sample{
			Bench: field("bench"), Mode: field("mode"), Run: field("run"), Value: value, Unit: field("unit"),
			Kernel: field("kernel"), Accelerator: field("accelerator"),
		})
		return nil
	})
	return samples, err
}

func readGaps(name string) (gaps []Gap, err error) {
	err = readTable(name, []string{"pair", "services", "run", "client", "at_ms", "outcome"}, func(field func(string) string) error {
		at, err := strconv.ParseFloat(field("at_ms"), 64)
		if err != nil {
			return fmt.Errorf("at_ms %q is no number", field("at_ms"))
		}
		services, err := strconv.Atoi(field("services"))
		if err != nil {
			return fmt.Errorf("services %q is no number", field("services"))
		}
		gaps = append(gaps, Gap{field("pair"), services, field("run"), field("client"), at, field("outcome")})
		return nil
	})
	return gaps, err
}

// readTable reads a CSV file with a header, row by row. A file that does not exist has no rows. field gives a row's field by its
// column's name, "" where there is no such column.
func readTable(name string, need []string, row func(field func(string) string) error) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read figures: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.ReuseRecord = true
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read figures: %s: %w", name, err)
	}
	at := map[string]int{}
	for i, h := range head {
		at[strings.ReplaceAll(strings.TrimSpace(h), " ", "_")] = i
	}
	for _, column := range need {
		if _, ok := at[column]; !ok {
			return fmt.Errorf("read figures: %s:1: it has no column %q", name, column)
		}
	}
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read figures: %s: %w", name, err)
		}
		field := func(column string) string {
			if i, ok := at[column]; ok {
				return fields[i]
			}
			return ""
		}
		if err := row(field); err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("read figures: %s:%d: %w", name, line, err)
		}
	}
}
