// Package kube is how Moor's controllers talk to an API server: writes that
// are skipped when nothing changes, finalizers, conditions, names, managers.
// It knows no kind of ours and takes no decision.
package kube
