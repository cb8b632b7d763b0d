package dpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// Plugins are the vendor plugins of this DPU, as whoever discovers them knows
// them. None of the calls blocks.
type Plugins interface {
	// Names of all plugins, also of those that do not answer, in order.
	Names() ([]string, error)
	// Get returns the plugin called name, or says why it may not be used.
	Get(name string) (vendorplugin.Vetted, error)
	// Suspect has a plugin checked that did not answer.
	Suspect(name string)
	// States says how each is.
	States() []moorv1alpha1.PluginState
}

// vendor is a plugin that may be used.
type vendor struct {
	vendorplugin.Plugin
	name     string
	can      vendorplugin.Capabilities
	provider string
}

// plugin returns the plugin called name.
func (r *Reconciler) plugin(name string) (*vendor, error) {
	v, err := r.o.Plugins.Get(name)
	if err != nil {
		return nil, err
	}
	return &vendor{Plugin: v.Plugin, name: name, can: v.Can, provider: v.Provider}, nil
}

// lost has the plugin checked if err says that it did not answer, and returns
// err.
func (r *Reconciler) lost(name string, err error) error {
	if errors.Is(err, provisioner.ErrUnavailable) {
		r.o.Plugins.Suspect(name)
	}
	return err
}

// PluginsChanged looks again at the attachments that may wait for a plugin, and
// asks for a report. It never blocks for long.
func (r *Reconciler) PluginsChanged(ctx context.Context) {
	r.tellChange()
	all, err := r.attachments(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list what may wait for a vendor plugin")
		return
	}
	for i := range all {
		if all[i].Status.Message == "" && all[i].DeletionTimestamp.IsZero() {
			continue
		}
		select {
		case r.events <- event.GenericEvent{Object: all[i].DeepCopy()}:
		default: // the next try of each comes in its time
		}
	}
}

// having returns the directories in root that hold a file, in order. A root
// that does not exist holds none.
func having(root, file string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for services under %s: %w", root, err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(root, e.Name(), file)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
