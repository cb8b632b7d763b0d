// Package wire is the JSON of the emulated service: how parameters are read, and
// how what there is is listed.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Decode decodes the parameters of a request into P as SPDK's decoder
// does: unknown keys are refused, keys are compared to the letter, and fields
// tagged `snap:"must"` have to be there. The error is for the caller's eyes.
func Decode[P any](raw json.RawMessage) (P, error) {
	var p P
	given := map[string]json.RawMessage{}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) {
		if err := json.Unmarshal(trimmed, &given); err != nil {
			return p, fmt.Errorf("params is no object")
		}
	}
	known, must := fieldNames(reflect.TypeFor[P]())
	// snap_rpc.py calls a controller --ctrl, the JSON of newer versions
	// ctrl_id: both are in use.
	if id, old := given["ctrl"]; old && given["ctrl_id"] == nil && slices.Contains(known, "ctrl_id") {
		given["ctrl_id"] = id
		delete(given, "ctrl")
	}
	for key := range given {
		if !slices.Contains(known, key) {
			return p, fmt.Errorf("unknown parameter %q", key)
		}
	}
	for _, key := range must {
		if len(given[key]) == 0 || bytes.Equal(given[key], []byte("null")) {
			return p, fmt.Errorf("parameter %q is missing", key)
		}
	}
	if len(given) == 0 {
		return p, nil
	}
	checked, err := json.Marshal(given)
	if err != nil {
		return p, fmt.Errorf("params is no object")
	}
	if err := json.Unmarshal(checked, &p); err != nil {
		return p, fmt.Errorf("parameters have the wrong type: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return p, nil
}

// fieldNames returns the JSON names of t's fields and those that must be given.
func fieldNames(t reflect.Type) (known, must []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
		if f.Tag.Get("snap") == "must" {
			must = append(must, name)
		}
	}
	return known, must
}
