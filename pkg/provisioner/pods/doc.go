// Package pods makes volumes by pods: it compiles a PavProvisioner, and says for a volume which
// requests it takes and which pod validates, makes, removes, stages, unstages or revokes it.
//
// It does no I/O: what templates look up by get_pvc is asked of an interface, and the pods are
// values. Who runs them, and when, is decided elsewhere.
//
// The templates and the words for them are those of Pods-as-Volumes (PaV) 0.1; docs/decisions/0029
// says what differs, and why.
package pods
