package kube

import (
	"strings"
	"testing"
)

func TestRate(t *testing.T) {
	for words, r := range map[string]Rate{
		"":                      {QPS: -1, Burst: 1},
		"--kube-api-qps is 0":   {QPS: 0, Burst: 200},
		"--kube-api-burst is 0": {QPS: 100},
	} {
		if err := r.Validate(); (err == nil) != (words == "") || err != nil && !strings.HasPrefix(err.Error(), words) {
			t.Errorf("%+v: %v, want %q", r, err, words)
		}
	}
}
