// Package kube is how Moor's controllers talk to an API server: writes that
// are skipped when nothing changes, finalizers, conditions, names, managers.
// Of Moor's kinds it knows how they are served, and it takes no decision.
package kube
