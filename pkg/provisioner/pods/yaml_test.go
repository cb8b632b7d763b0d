package pods

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAliases: aliases are read, and those that would make much of little are refused before they do.
func TestAliases(t *testing.T) {
	got, err := readYAML("a: &a [x]\nb: {c: *a}\nd: {<<: {e: 1}}")
	want := map[string]any{"a": []any{"x"}, "b": map[string]any{"c": []any{"x"}}, "d": map[string]any{"e": int64(1)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	long := "a: &a " + strings.Repeat("x", 100_000) + "\n"
	ten := func(of string) string { return "[" + strings.Repeat("*"+of+", ", 10) + "]\n" }
	for name, text := range map[string]string{
		"a long text":              long + "b: [" + strings.Repeat("*a, ", 10_000) + "]",
		"lists of lists":           "a: &a [x]\nb: &b " + ten("a") + "c: &c " + ten("b") + "d: &d " + ten("c") + "e: &e " + ten("d") + "f: &f " + ten("e") + "g: &g " + ten("f") + "h: " + ten("g"),
		"a long key":               "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("{*a : 1}, ", 1000) + "]",
		"a merged mapping":         "a: &a {x: " + strings.Repeat("x", 100_000) + "}\nb: [" + strings.Repeat("{<<: *a}, ", 1000) + "]",
		"an end that is not there": "a: &a [*a]",
	} {
		if _, err := readYAML(text); err == nil || !strings.Contains(err.Error(), "aliases written out") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slowClaims take as long as they are let.
type slowClaims struct{}

func (slowClaims) Claim(ctx context.Context, _, _ string) (*corev1.PersistentVolumeClaim, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("look a claim up: %w", ctx.Err())
}

// TestAllTemplatesAreBounded: what is evaluated for a phase ends in time, however many templates it is.
func TestAllTemplatesAreBounded(t *testing.T) {
	p := compiled(t, "volumeDeletion.podTemplate", map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "c", "image": "{{ get_pvc('a', 'b') }}"},
	}}})
	_, c, err := OfClaim(claimOf("1Gi", ""), classOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := p.Delete(t.Context(), slowClaims{}, c); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != evaluationTime {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
