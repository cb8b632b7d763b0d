package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// skip is what the bed cannot run, whatever the driver does.
type skip struct {
	// specs is a regular expression for the full names of the specs.
	specs string
	// because is the reason, as the report prints it.
	because string
	// unless is the capability of a process (capabilities(7), by number) with
	// which they can run; 0 for none.
	unless uint
	// of are the definitions that it is about; none for all.
	of []string
}

// capSysResource lets ext4 grow while it is mounted (ext4_resize_begin of Linux).
const capSysResource = 24

// list is all that is left out besides what the definitions do not switch on.
var list = []skip{
	{specs: `ntfs`, because: "a file system of Windows"},
	{specs: `\[Disruptive\]`, because: "stops kubelets by SSH, which the bed's machines do not have"},
	{specs: `with any volume data source`, because: "its hello-populator is not to be had as a Go module, and pods on the bed cannot reach the API server"},
	{specs: `\[Feature:SELinux\]`, because: "the bed's machines have no SELinux"},
	{
		specs:   `volumegroupsnapshottable`,
		because: "restores file systems of 1 MiB whatever a driver's smallest is, 8 MiB here; test/e2e restores groups",
		of:      []string{"nvme"},
	},
	{
		specs:   `\(default fs\)(\(allowExpansion\)\] volume-expand should resize volume when PVC is edited while|.*ephemeral should support expansion)`,
		because: "ext4 in use grows only with CAP_SYS_RESOURCE, which this machine does not give; xfs.yaml tries it",
		unless:  capSysResource,
		of:      []string{"nvme", "local"},
	},
}

// left returns what of the list holds for a definition on a machine whose
// processes have the capabilities in the mask.
func left(definition string, capabilities uint64) []skip {
	var out []skip
	for _, s := range list {
		possible := s.unless != 0 && capabilities&(1<<s.unless) != 0
		if !possible && (len(s.of) == 0 || slices.Contains(s.of, definition)) {
			out = append(out, s)
		}
	}
	return out
}

// expression is one regular expression for the specs of all.
func expression(skips []skip) string {
	var out []string
	for _, s := range skips {
		out = append(out, s.specs)
	}
	return strings.Join(out, "|")
}

// why says for which reason a spec is left out; "" if for none.
func why(skips []skip, spec string) string {
	for _, s := range skips {
		if regexp.MustCompile(s.specs).MatchString(spec) {
			return s.because
		}
	}
	return ""
}

// capabilities reads the mask of this process's from /proc/self/status.
func capabilities() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the process's capabilities: %w", err)
	}
	return effective(string(status))
}

// effective finds the mask CapEff in the text of a /proc/<pid>/status.
func effective(status string) (uint64, error) {
	_, rest, found := strings.Cut(status, "\nCapEff:")
	if !found {
		return 0, fmt.Errorf("read the process's capabilities: there is no CapEff in its status")
	}
	line, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read the process's capabilities: %w", err)
	}
	return mask, nil
}
