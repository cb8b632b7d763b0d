package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// bill writes the SBOM of an image: that of its program, which cyclonedx-gomod has made, and the
// Debian packages of what it calls.
func (m Maker) bill(i Image, root string, owners []string) error {
	text, err := os.ReadFile(filepath.Join(m.Dir, "sbom", i.Program+".cdx.json"))
	if err != nil {
		return fmt.Errorf("read the SBOM of the program: %w", err)
	}
	var found []Package
	for _, name := range owners {
		p, err := m.System.Describe(name)
		if err != nil {
			return err
		}
		found = append(found, p)
	}
	out, err := WithPackages(text, found)
	if err != nil {
		return fmt.Errorf("read the SBOM of %s: %w", i.Program, err)
	}
	if err := os.WriteFile(filepath.Join(root, bill), out, 0o644); err != nil {
		return fmt.Errorf("write the SBOM: %w", err)
	}
	return nil
}

// WithPackages adds Debian packages to the components of an SBOM of CycloneDX.
func WithPackages(sbom []byte, packages []Package) ([]byte, error) {
	var document map[string]any
	if err := json.Unmarshal(sbom, &document); err != nil {
		return nil, err
	}
	components, _ := document["components"].([]any)
	if document["bomFormat"] != "CycloneDX" || len(components) == 0 {
		return nil, fmt.Errorf("it is of the format %v, and has %d components", document["bomFormat"], len(components))
	}
	for _, p := range packages {
		purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=debian-12", url.QueryEscape(p.Name), url.QueryEscape(p.Version), p.Arch)
		components = append(components, map[string]any{"bom-ref": purl, "type": "library", "name": p.Name, "version": p.Version, "purl": purl})
	}
	document["components"] = components
	return json.MarshalIndent(document, "", "  ")
}

// whole fails if the SBOM of an image lacks a module that its program says it was built of.
func (m Maker) whole(i Image) error {
	root := m.Tree(i.Name)
	info, err := buildinfo.ReadFile(filepath.Join(root, programs, i.Program))
	if err != nil {
		return fmt.Errorf("image %s: read what the program was built of: %w", i.Name, err)
	}
	text, err := os.ReadFile(filepath.Join(root, bill))
	if err != nil {
		return fmt.Errorf("image %s: read the SBOM: %w", i.Name, err)
	}
	missing, err := Missing(info, text)
	if err != nil {
		return fmt.Errorf("image %s: read the SBOM: %w", i.Name, err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("image %s: the SBOM lacks %v", i.Name, missing)
	}
	return nil
}

// Missing are the modules of a program, path@version, that an SBOM does not name, sorted. A
// program without modules misses them all.
func Missing(info *debug.BuildInfo, sbom []byte) ([]string, error) {
	var document struct {
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(sbom, &document); err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, c := range document.Components {
		if c.Purl != "" {
			named[c.Name+"@"+c.Version] = true
		}
	}
	if len(info.Deps) == 0 {
		return []string{"all modules"}, nil
	}
	var out []string
	for _, d := range info.Deps {
		if d.Replace != nil && d.Replace.Version != "" {
			d = d.Replace
		}
		if name := d.Path + "@" + d.Version; !named[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}
