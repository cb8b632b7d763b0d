// Package extender answers kube-scheduler's questions over HTTP, in the words
// of k8s.io/kube-scheduler/extender/v1: which nodes cannot serve a pod's
// volumes at all (filter), and how near the others are to them (prioritize).
// It owns the protocol; what it answers comes from pkg/placement over an index
// of snapshot. No answer waits for the API server, and it has nothing to say of pods
// without volumes of the drivers. It writes one annotation of one object: see Retry.
package extender
