package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// commands are the power of a machine, each a program and its arguments.
type commands struct {
	off, on []string
	state   string
}

// PowerOff implements bmc.Machine.
func (c commands) PowerOff(ctx context.Context) error { return runAll(ctx, c.off) }

// PowerOn implements bmc.Machine.
func (c commands) PowerOn(ctx context.Context) error { return runAll(ctx, c.on) }

// IsOn implements bmc.Machine. Nothing but the two words says how it is.
func (c commands) IsOn(ctx context.Context) (bool, error) {
	switch out, err := run(ctx, c.state); {
	case err != nil:
		return false, err
	case out == "On":
		return true, nil
	case out == "Off":
		return false, nil
	default:
		return false, fmt.Errorf("%s: it says %q, and neither On nor Off", c.state, out)
	}
}

// runAll runs the commands one after the other, also if one of them fails.
func runAll(ctx context.Context, all []string) error {
	var errs []error
	for _, command := range all {
		_, err := run(ctx, command)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, command string) (string, error) {
	words := strings.Fields(command)
	if len(words) == 0 {
		return "", errors.New("an empty command")
	}
	var told strings.Builder
	cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // the flags name it
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(told.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
