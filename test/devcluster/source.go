package devcluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Source is what programs were built from.
type Source struct {
	// Commit is short; "unknown" outside of git.
	Commit string `json:"commit"`
	// Dirty is whether the checkout had changes of anything that is built.
	Dirty bool `json:"dirty"`
}

// notBuilt are the parts of the checkout of which nothing is built, as git names
// them.
var notBuilt = []string{":(exclude)docs", ":(exclude)bench", ":(exclude,glob)**/*.md"}

// ReadSource reads what a checkout holds now. All that differs from the commit
// counts, new files too: go.mod, manifests, embedded files and scripts go into
// what is measured as code does. Pages and results do not.
func ReadSource(ctx context.Context, root string) Source {
	commit, err := Git(ctx, root, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return Source{Commit: "unknown", Dirty: true}
	}
	changed, err := Git(ctx, root, append([]string{"status", "--porcelain", "--untracked-files=all", "--", "."}, notBuilt...)...)
	return Source{Commit: commit, Dirty: err != nil || changed != ""}
}

// Git asks git about a checkout.
func Git(ctx context.Context, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("ask git %v: %w", args, err)
	}
	return strings.TrimSpace(string(out)), nil
}
