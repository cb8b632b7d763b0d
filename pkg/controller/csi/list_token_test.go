package csi

import (
	"errors"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestTokens(t *testing.T) {
	for name, tc := range map[string]struct {
		token string
		most  int32
		want  error
	}{
		"none":              {"", 0, nil},
		"ours":              {listVolumes.token("v1"), 3, nil},
		"negative":          {"", -1, provisioner.ErrInvalid},
		"made up":           {"v1", 0, provisioner.ErrToken},
		"a number":          {"1", 0, provisioner.ErrToken},
		"of another list":   {listSnapshots.token("v1"), 0, provisioner.ErrToken},
		"with a tail":       {listVolumes.token("v1") + "AA", 0, provisioner.ErrToken},
		"with padding":      {listVolumes.token("v1") + "=", 0, provisioner.ErrToken},
		"with a line break": {listVolumes.token("v1") + "\n", 0, provisioner.ErrToken},
	} {
		t.Run(name, func(t *testing.T) {
			page, err := listVolumes.page(tc.token, tc.most)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if err == nil && (page.Max != int(tc.most) || (tc.token != "") != (page.After == "v1")) {
				t.Fatalf("got %+v", page)
			}
		})
	}
}

func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "v1", "invalid-token", listVolumes.token("v1"), listVolumes.token("\x00")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range []list{listVolumes, listSnapshots, listHealth} {
			if got, err := l.after(l.token(text)); err != nil || got != text {
				t.Fatalf("%q came back as %q, %v", text, got, err)
			}
			after, err := l.after(text)
			switch {
			case err != nil && !errors.Is(err, provisioner.ErrToken):
				t.Fatalf("%q: %v", text, err)
			case err == nil && l.token(after) != text:
				t.Fatalf("%q is taken for a token and was not given out", text)
			}
		}
	})
}
