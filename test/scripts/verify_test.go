package scripts

import (
	"os/exec"
	"strings"
	"testing"
)

// newRepository is a checkout with generated files, and generators that make
// them again.
func newRepository(t *testing.T) *checkout {
	t.Helper()
	c := newCheckout(t)
	c.write(t, "api/plugin/v1/storage_plugin.pb.go", "package v1\n")
	c.write(t, "crds/host/volumes.yaml", "kind: CustomResourceDefinition\n")
	c.write(t, "hack/protoc.sh", "#!/bin/bash\nprotoc && echo 'package v1' >\"$(dirname \"$0\")/../api/plugin/v1/storage_plugin.pb.go\"\n")
	c.write(t, "hack/generate.sh", "#!/bin/bash\ngo generator && echo 'kind: CustomResourceDefinition' >\"$(dirname \"$0\")/../crds/host/volumes.yaml\"\n")
	c.write(t, "hack/licenses.sh", "#!/bin/bash\nexec licenses\n")
	c.write(t, "programs/licenses", pretend)
	c.write(t, "tagged_test.go", "//go:build root\n\npackage moor\n")
	for _, argv := range [][]string{{"git", "init", "-q"}, {"git", "add", "-A", "--", ".", ":!programs"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = c.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	return c
}

func TestVerifyPasses(t *testing.T) {
	if out, code := newRepository(t).run(t, nil, "hack/verify.sh"); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// Each tool, when it fails, makes its check fail, and no other.
func TestVerifyFailsWithItsTools(t *testing.T) {
	for _, tt := range []struct{ fail, check string }{
		{"^go generator", "generated"},
		{"^protoc $", "generated"},
		{"^go mod tidy", "tidy"},
		{"^licenses", "licenses"},
		{"^go vet [.]", "vet"},
		{"^go vet -tags", "vet"},
		{"^go tool .*golangci-lint", "lint"},
		{"^shellcheck", "shell"},
		{"^go test .*archtest", "layers"},
	} {
		out, code := newRepository(t).run(t, []string{"FAIL=" + tt.fail}, "hack/verify.sh")
		if want := "verify: FAILED: " + tt.check + "\n"; code == 0 || !strings.HasSuffix(out, want) {
			t.Errorf("with %q failing the exit code is %d, want an end of %q: %s", tt.fail, code, want, out)
		}
	}
}

func TestVerifyFindsWhatIsNotGenerated(t *testing.T) {
	for _, file := range []string{"api/plugin/v1/storage_plugin.pb.go", "crds/host/volumes.yaml"} {
		c := newRepository(t)
		c.write(t, file, "edited by hand\n")
		if out, code := c.run(t, nil, "hack/verify.sh", "generated"); code == 0 || !strings.Contains(out, "-edited by hand") {
			t.Errorf("%s was edited by hand, exit code %d: %s", file, code, out)
		}
	}
	c := newRepository(t)
	c.write(t, "hack/generate.sh", "#!/bin/bash\necho new >\"$(dirname \"$0\")/../crds/host/more.yaml\"\n")
	if out, code := c.run(t, nil, "hack/verify.sh", "generated"); code == 0 || !strings.Contains(out, "crds/host/more.yaml") {
		t.Errorf("a generated file is missing, exit code %d: %s", code, out)
	}
}

func TestVerifyKnowsEachTag(t *testing.T) {
	c := newRepository(t)
	c.write(t, "tagged_test.go", "//go:build unknown\n\npackage moor\n")
	if out, code := c.run(t, nil, "hack/verify.sh", "tags"); code == 0 || !strings.Contains(out, "unknown") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
