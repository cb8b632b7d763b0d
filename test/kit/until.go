package kit

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// patience bounds a wait for what is not measured.
	patience = 5 * time.Minute
	// lookEvery is how often to look.
	lookEvery = 250 * time.Millisecond
)

// Until looks again and again until done, for what is not measured. The error
// says what was waited for.
func Until(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextTimeout(ctx, lookEvery, patience, true, done); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}
