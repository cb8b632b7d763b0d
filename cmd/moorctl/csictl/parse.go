package csictl

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
)

// parseCapability reads MODE,TYPE[,FSTYPE[,MOUNT FLAG...]] as csc does: MODE is
// the number or the name of an access mode, TYPE block or mount.
func parseCapability(s string) (*csispec.VolumeCapability, error) {
	words := strings.Split(s, ",")
	mode, err := parseMode(words[0])
	if err != nil || len(words) < 2 {
		return nil, fmt.Errorf("--cap %q is not MODE,TYPE[,FSTYPE[,FLAG...]], such as 1,block or 1,mount,ext4: %w", s, err)
	}
	c := &csispec.VolumeCapability{AccessMode: &csispec.VolumeCapability_AccessMode{Mode: mode}}
	switch {
	case words[1] == "block" && len(words) == 2:
		c.AccessType = &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}}
	case words[1] == "mount":
		m := &csispec.VolumeCapability_MountVolume{}
		if len(words) > 2 {
			m.FsType, m.MountFlags = words[2], words[3:]
		}
		c.AccessType = &csispec.VolumeCapability_Mount{Mount: m}
	default:
		return nil, fmt.Errorf("--cap %q: the type is block, with nothing after it, or mount", s)
	}
	return c, nil
}

func parseMode(s string) (csispec.VolumeCapability_AccessMode_Mode, error) {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil {
		if _, known := csispec.VolumeCapability_AccessMode_Mode_name[int32(n)]; known {
			return csispec.VolumeCapability_AccessMode_Mode(n), nil
		}
	}
	if n, known := csispec.VolumeCapability_AccessMode_Mode_value[s]; known {
		return csispec.VolumeCapability_AccessMode_Mode(n), nil
	}
	return 0, fmt.Errorf("there is no access mode %q", s)
}

// capabilities is the flag --cap.
type capabilities struct{ words []string }

func (c *capabilities) bind(fs *pflag.FlagSet) {
	fs.StringArrayVar(&c.words, "cap", nil, "how the volume is used: MODE,TYPE[,FSTYPE[,FLAG...]], such as 1,block or 1,mount,ext4; may be repeated where several are allowed")
}

func (c *capabilities) all() ([]*csispec.VolumeCapability, error) {
	var out []*csispec.VolumeCapability
	for _, w := range c.words {
		one, err := parseCapability(w)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// one is the only capability, nil if none was given.
func (c *capabilities) one() (*csispec.VolumeCapability, error) {
	all, err := c.all()
	switch {
	case err != nil || len(all) == 0:
		return nil, err
	case len(all) > 1:
		return nil, fmt.Errorf("--cap is given %d times: one is wanted", len(all))
	}
	return all[0], nil
}

// size is the flags of a capacity range, in bytes.
type size struct{ required, limit int64 }

func (s *size) bind(fs *pflag.FlagSet) {
	fs.Int64Var(&s.required, "req-bytes", 0, "least size in bytes")
	fs.Int64Var(&s.limit, "lim-bytes", 0, "greatest size in bytes; 0: any")
}

func (s *size) capacity() *csispec.CapacityRange {
	if s.required == 0 && s.limit == 0 {
		return nil
	}
	return &csispec.CapacityRange{RequiredBytes: s.required, LimitBytes: s.limit}
}

// carried is a map that one call answers and another one is given. It can hold
// secrets, so it goes through a file that no other user may read.
type carried struct {
	pairs map[string]string
	file  string
}

func (c *carried) bind(fs *pflag.FlagSet, name, what string) {
	fs.StringToStringVar(&c.pairs, name, nil, what+": key=value, may be repeated")
	c.bindFile(fs, name, "file with the "+what+", as the call that answered it wrote it")
}

func (c *carried) bindFile(fs *pflag.FlagSet, name, usage string) {
	fs.StringVar(&c.file, name+"-file", "", usage)
}

// load returns the pairs and what is in the file; pairs count more.
func (c *carried) load() (map[string]string, error) {
	out := map[string]string{}
	if c.file != "" {
		raw, err := os.ReadFile(c.file)
		if err != nil {
			return nil, fmt.Errorf("read a context: %w", err)
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			return nil, fmt.Errorf("read the context in %s: %w", c.file, err)
		}
	}
	maps.Copy(out, c.pairs)
	return out, nil
}

// save writes the file, if there is to be one.
func (c *carried) save(m map[string]string) error {
	if c.file == "" {
		return nil
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write a context: %w", err)
	}
	if err := os.WriteFile(c.file, raw, 0o600); err != nil {
		return fmt.Errorf("write a context: %w", err)
	}
	return nil
}

// pairs are columns, in order.
func pairs(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%q=%q", k, m[k]))
	}
	return out
}
