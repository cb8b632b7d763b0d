package install

import (
	"fmt"
	"strings"

	"github.com/moor-storage/moor/test/devcluster"
)

// Step is a part of a page's shell commands that is for one cluster.
type Step struct {
	// Cluster is host, dpu or dpu2.
	Cluster string
	// Script is a shell script.
	Script string
}

// clusters are the comments by which a page says for which cluster the lines after it are. Where
// there is one DPU cluster, there is none to which the steps of the second are given.
var clusters = map[string][]string{
	"# host cluster":       {devcluster.HostCluster},
	"# DPU cluster":        {devcluster.DPUCluster},
	"# second DPU cluster": {devcluster.SecondDPUCluster},
	"# each DPU cluster":   {devcluster.DPUCluster, devcluster.SecondDPUCluster},
	"# each cluster":       {devcluster.HostCluster, devcluster.DPUCluster, devcluster.SecondDPUCluster},
}

// Steps are the shell commands below a heading of a page, in their order. Blocks of a page about two
// clusters begin with a comment that says for which one they are; cluster is that of the commands of
// a page about one, and else "".
func Steps(page, heading, cluster string) ([]Step, error) {
	_, section, found := strings.Cut("\n"+page, "\n"+heading+"\n")
	if !found {
		return nil, fmt.Errorf("read a page: it has no heading %q", heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	if end := strings.Index(section, "\n"+level+" "); end >= 0 {
		section = section[:end]
	}
	out, err := stepsOf(section, cluster)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %q of a page: %w", heading, err)
	case len(out) == 0:
		return nil, fmt.Errorf("read %q of a page: it has no commands", heading)
	}
	return out, nil
}

// stepsOf are the shell commands of a section, without a comment those of cluster.
func stepsOf(section, cluster string) ([]Step, error) {
	var out []Step
	inBlock, current, indent := false, 0, ""
	for line := range strings.Lines(section) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "```sh" && !inBlock:
			inBlock, current = true, 0
			indent, _, _ = strings.Cut(line, "`")
			if cluster != "" {
				out, current = append(out, Step{Cluster: cluster}), 1
			}
		case !inBlock:
		case trimmed == "```":
			inBlock = false
		case clusters[trimmed] != nil:
			current = len(clusters[trimmed])
			for _, cluster := range clusters[trimmed] {
				out = append(out, Step{Cluster: cluster})
			}
		case current == 0:
			return nil, fmt.Errorf("the command %q comes before a comment that says for which cluster it is", trimmed)
		default:
			for i := len(out) - current; i < len(out); i++ {
				out[i].Script += strings.TrimPrefix(line, indent)
			}
		}
	}
	return out, nil
}
