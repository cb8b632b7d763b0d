package main

import (
	"regexp"
	"testing"
)

const grown = "External Storage [Driver: csi.snap.nvidia.com] [Testpattern: Dynamic PV (default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is using it"

func TestLeft(t *testing.T) {
	for name, c := range map[string]struct {
		definition   string
		capabilities uint64
		spec         string
		out          bool
	}{
		"ext4 that grows in use":   {"nvme", 0, grown, true},
		"the same without a DPU":   {"local", 0, grown, true},
		"on a machine that may":    {"nvme", 1 << capSysResource, grown, false},
		"xfs that grows in use":    {"xfs", 0, grown, false},
		"a pod's own volume grows": {"nvme", 0, "(default fs) (late-binding)] ephemeral should support expansion of pvcs created for ephemeral pvcs", true},
		"a block device in use":    {"nvme", 0, "(block volmode)(allowExpansion)] volume-expand should resize volume when PVC is edited while pod is using it", false},
		"for the next pod":         {"nvme", 0, "(default fs)(allowExpansion)] volume-expand should resize volume when PVC is edited and the pod is re-created", false},
		"not in use":               {"nvme", 0, "(default fs)(allowExpansion)] volume-expand Verify if offline PVC expansion works", false},
		"Windows":                  {"nvme", ^uint64(0), "[Testpattern: Dynamic PV (ntfs)] volumes should store data", true},
		"without SELinux":          {"virtiofs", ^uint64(0), "seLinuxMount [LinuxOnly] [Feature:SELinux] should", true},
		"what every bed can do":    {"nvme", 0, "[Testpattern: Dynamic PV (xfs)] volumes should store data", false},
		"what stops the kubelets":  {"nvme", ^uint64(0), "subPath should unmount if pod is force deleted while kubelet is down [Disruptive]", true},
	} {
		t.Run(name, func(t *testing.T) {
			skips := left(c.definition, c.capabilities)
			if got := regexp.MustCompile(expression(skips)).MatchString(c.spec); got != c.out {
				t.Errorf("left out: %v", got)
			}
			if got := why(skips, c.spec); (got != "") != c.out {
				t.Errorf("because: %q", got)
			}
		})
	}
}

func TestEffective(t *testing.T) {
	if got, err := effective("Name:\tx\nCapEff:\t0000000001000000\nCapBnd:\t00\n"); err != nil || got != 1<<capSysResource {
		t.Errorf("%x, %v", got, err)
	}
	for _, status := range []string{"", "Name:\tx\n", "Name:\tx\nCapEff:\tnone\n"} {
		if _, err := effective(status); err == nil {
			t.Errorf("%q was read", status)
		}
	}
}
