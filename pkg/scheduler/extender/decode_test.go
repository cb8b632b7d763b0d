package extender

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// bodies and whether they are read fast.
var bodies = map[string]bool{
	`{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n1","n-2.example","N_3"]}`:   true,
	`{"Pod":null,"NodeNames":["n1"]}` + "\n":                                                  true,
	`{"Pod":{},"NodeNames":["",""]}`:                                                          true,
	`{"Pod":{},"NodeNames":["old"],"NodeNames":["n1","n2"]}`:                                  false,
	`{"Pod":{"metadata":{"annotations":{"a":",\"NodeNames\":[\"x\"]}"}}},"NodeNames":["n1"]}`: true,
	`{"Pod":{"metadata":{"annotations":{"a":",\"NodeNames\":[\"x\"]}"}}}}`:                    false,
	`{"Pod":{},"NodeNames":[]}`:                                                               false,
	`{"Pod":{},"NodeNames":null}`:                                                             false,
	`{"Pod":{},"NodeNames":["n1"],"Nodes":null}`:                                              false,
	`{"NodeNames":["n1"],"Pod":{}}`:                                                           false,
	`{"Pod":{},"NodeNames":["n1" , "n2"]}`:                                                    false,
	`{"Pod":{},"NodeNames":["\u006e1"]}`:                                                      false,
	`{"Pod":{},"NodeNames":["n1",7]}`:                                                         false,
	`{"Pod":{},"NodeNames":["n1",]}`:                                                          false,
	`{"Pod":{},"NodeNames":["n1"]}}`:                                                          false,
	`{"Pod":{},"NodeNames":["n1"]`:                                                            false,
	`{"Pod":{"spec":{"x":1,"NodeNames":["n1"]}`:                                               false,
	`{"Pod":{"spec":{"x":1,"NodeNames":["n1"]}}}`:                                             false,
	`{"Pod":7,"NodeNames":["n1"]}`:                                                            false,
	`{"Pod":{},"NodeNames":["n1""n2"]}`:                                                       false,
	`{"Pod":{},"NodeNames":["n1","n2]}`:                                                       false,
	`,"NodeNames":["n1"]}`:                                                                    false,
	`{,"NodeNames":["n1"]}`:                                                                   false,
	`{"Pod":{},,"NodeNames":["n1"]}`:                                                          false,
	``:                                                                                        false,
}

func TestDecode(t *testing.T) {
	for body, fast := range bodies {
		if _, ok := decodeFast([]byte(body)); ok != fast {
			t.Errorf("%s: fast %v, want %v", body, ok, fast)
		}
		checkDecode(t, body)
	}
}

// checkDecode holds decode to json.Unmarshal, and to leaving the body alone.
func checkDecode(t *testing.T, body string) {
	t.Helper()
	raw := []byte(body)
	got, gotErr := decode(raw)
	want := &extenderv1.ExtenderArgs{}
	wantErr := json.Unmarshal([]byte(body), want)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s: %v, json.Unmarshal says %v", body, gotErr, wantErr)
	}
	if !bytes.Equal(raw, []byte(body)) {
		t.Errorf("%s became %s", body, raw)
	}
	if wantErr != nil {
		return
	}
	if diff := cmp.Diff(want.NodeNames, got.NodeNames); diff != "" {
		t.Errorf("%s: %s", body, diff)
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if !slices.Equal(a, b) {
		t.Errorf("%s: read as %s, json.Unmarshal reads %s", body, b, a)
	}
}

func FuzzDecode(f *testing.F) {
	for body := range bodies {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) { checkDecode(t, body) })
}
