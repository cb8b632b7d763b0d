package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// commands are the power of a machine, each a program and its arguments.
type commands struct{ off, on, isOn string }

// PowerOff implements bmc.Machine.
func (c commands) PowerOff(ctx context.Context) error { return run(ctx, c.off) }

// PowerOn implements bmc.Machine.
func (c commands) PowerOn(ctx context.Context) error { return run(ctx, c.on) }

// IsOn implements bmc.Machine. Only a command that ran and ended with 1 says no.
func (c commands) IsOn(ctx context.Context) (bool, error) {
	err := run(ctx, c.isOn)
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

func run(ctx context.Context, command string) error {
	words := strings.Fields(command)
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput() //nolint:gosec // the flags name it
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}
