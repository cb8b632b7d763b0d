// Package machine runs machines made of namespaces: own mounts, process
// numbers, network, host name and IPC, on the kernel and the root file system
// of this machine. Killing a machine's first process with SIGKILL is the power
// switch: the kernel ends everything in it at once.
package machine

import (
	"encoding/json"
	"fmt"
	"os"
)

// InitCommand is the hidden command of moor-dev that becomes process 1 of a
// machine. Its one argument is the file of a Spec.
const InitCommand = "machine-init"

// readyFD is the descriptor on which process 1 tells that the machine is up:
// "ok", or the text of the error.
const readyFD = 3

const readyWord = "ok"

// Bind puts a directory or file of this machine at a place in the machine.
type Bind struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Spec is a machine to boot.
type Spec struct {
	Name string `json:"name"`
	// Cgroups are the cgroup.procs files that process 1 joins.
	Cgroups []string `json:"cgroups"`
	// RunDir is an empty directory on which the machine's /run is prepared.
	RunDir string `json:"runDir"`
	// RunBinds appear below /run, named relative to it.
	RunBinds []Bind `json:"runBinds"`
	// Binds appear anywhere else; the targets exist on this machine.
	Binds []Bind `json:"binds"`
	// Settings are files below /proc/sys and what is written to them; a
	// kernel that lacks one is no reason to fail.
	Settings map[string]string `json:"settings"`
}

func readSpec(path string) (Spec, error) {
	var s Spec
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the machine's description: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the machine's description %s: %w", path, err)
	}
	return s, nil
}
