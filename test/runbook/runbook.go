// Package runbook reads the commands of a page that people follow step by step, so that a
// test can follow it too.
package runbook

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Commands are the shell commands of a page, as its reader would run them: those before the
// first section under "", those of a numbered step under "section/number", each block of them
// by itself.
type Commands map[string][]string

// Parts of a page: a section, a numbered step, and the lines between which commands are.
var (
	section = regexp.MustCompile(`^## (.+)$`)
	step    = regexp.MustCompile(`^(\d+)\. `)
	fence   = regexp.MustCompile("^( *)```(\\w*)$")
)

// Read reads the commands of a page.
func Read(file string) (Commands, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the commands of a page: %w", err)
	}
	return commands(string(text)), nil
}

func commands(text string) Commands {
	out, in, at := Commands{}, "", ""
	var block []string
	indent, open := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch f := fence.FindStringSubmatch(line); {
		case open && f != nil && f[1] == indent:
			out[at] = append(out[at], strings.Join(block, "\n")+"\n")
			open = false
		case open:
			block = append(block, strings.TrimPrefix(line, indent))
		case f != nil:
			open, indent, block = true, f[1], nil
		default:
			in, at = heading(line, in, at)
		}
	}
	return out
}

// heading is the section and the step that a line is in, after those of the line before.
func heading(line, in, at string) (string, string) {
	if s := section.FindStringSubmatch(line); s != nil {
		return s[1], s[1]
	}
	if s := step.FindStringSubmatch(line); s != nil {
		return in, in + "/" + s[1]
	}
	return in, at
}

// Step is the script of a step of a section: each of its blocks, in order.
func (c Commands) Step(section string, number int) (string, error) {
	blocks := c[fmt.Sprintf("%s/%d", section, number)]
	if len(blocks) == 0 {
		return "", fmt.Errorf("follow a page: step %d of %q has no commands", number, section)
	}
	return strings.Join(blocks, ""), nil
}
