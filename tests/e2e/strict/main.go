// Reads answers as Go's programs do: with encoding/json, into values of the types that a shape names. A line of the input has a shape
// and a body, a line of the output what was wrong with it. crates/api/tests/clients.rs says what shapes are.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func read(shape any, body json.RawMessage) error {
	switch shape := shape.(type) {
	case string:
		switch shape {
		case "string":
			return json.Unmarshal(body, new(string))
		case "int":
			return json.Unmarshal(body, new(int64))
		case "float":
			return json.Unmarshal(body, new(float64))
		case "float or null":
			return json.Unmarshal(body, new(*float64))
		}
	case []any:
		var items []json.RawMessage
		if err := json.Unmarshal(body, &items); err != nil {
			return err
		}
		if len(shape) > 1 && len(items) != len(shape) {
			return fmt.Errorf("%d items in %s", len(items), body)
		}
		for i, item := range items {
			if err := read(shape[i%len(shape)], item); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			return err
		}
		for name, inner := range shape {
			if name != "*" {
				member, has := members[name]
				if !has {
					return fmt.Errorf("no %s in %s", name, body)
				}
				if err := read(inner, member); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				continue
			}
			for _, member := range members {
				if err := read(inner, member); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return fmt.Errorf("unknown shape %v", shape)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var line struct {
			Shape any
			// A text, so that a body that is not JSON reaches the reader.
			Body string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			panic(err)
		}
		if err := read(line.Shape, json.RawMessage(line.Body)); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println()
		}
	}
}
