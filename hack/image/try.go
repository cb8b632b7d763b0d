package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// emulators start a program of another processor, by Go's name of it: Debian's qemu-user-static
// has them.
var emulators = map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}

// patience is how long a program may take to print its help; an emulated one is slow.
const patience = 2 * time.Minute

// Try holds each image to its SBOM, and starts every program of it: Moor's own with --version and --help, and what they
// call, with the libraries of the image alone. All run under the emulator, of this machine's
// own processor too, which looks for libraries in the image: none of this machine helps out.
func Try(ctx context.Context, list List, m Maker, arch string) error {
	emulator, err := exec.LookPath(emulators[arch])
	if err != nil {
		return fmt.Errorf("nothing was tried, as programs of %s cannot be started here: %w: install qemu-user-static (hack/apt/images.txt)", arch, err)
	}
	var failures []error
	for _, i := range list.Images {
		root := m.Tree(i.Name)
		failures = append(failures, m.whole(i))
		for _, flag := range []string{"--version", "--help"} {
			failures = append(failures, own(start(ctx, emulator, root, filepath.Join(programs, i.Program), flag)))
		}
		for _, path := range i.Calls {
			failures = append(failures, called(start(ctx, emulator, root, path, "-V")))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	fmt.Printf("every program of %d images of %s starts, and each SBOM names all modules\n", len(list.Images), arch)
	return nil
}

// Ending is how a program ended.
type Ending struct {
	What string
	Code int
	Said string
	// Err is set if it did not run to its end.
	Err error
}

// start starts a program of an image, with nothing of this machine's environment.
func start(ctx context.Context, emulator, root, path, flag string) Ending {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, emulator, "-L", root, filepath.Join(root, path), flag)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=/nowhere"}, &said, &said
	err := cmd.Run()
	e := Ending{What: fmt.Sprintf("%s: %s %s", filepath.Base(root), path, flag), Said: strings.TrimSpace(said.String())}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		e.Code = exit.ExitCode()
	default:
		e.Err = err
	}
	return e
}

// own fails unless a program of Moor did as it was asked.
func own(e Ending) error {
	if e.Err != nil || e.Code != 0 || e.Said == "" {
		return fmt.Errorf("%s: status %d, %v, and it said %q", e.What, e.Code, e.Err, e.Said)
	}
	return nil
}

// called fails if a program of Debian did not come as far as to look at its flag, which not each
// of them knows. 127 is what a loader ends with that lacks a library.
func called(e Ending) error {
	if e.Err != nil || e.Code == 127 || e.Said == "" || strings.Contains(e.Said, "shared libraries") {
		return fmt.Errorf("%s: status %d, %v, and it said %q", e.What, e.Code, e.Err, e.Said)
	}
	return nil
}
