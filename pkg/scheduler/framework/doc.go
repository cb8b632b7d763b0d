// Package framework is a plugin of kube-scheduler's scheduling framework, by
// the interfaces of k8s.io/kube-scheduler/framework. It answers as the extender
// does, from the same index and by the same ranking, and does what an extender
// cannot: it sees that a node with a ready replica is looked at however few
// nodes the scheduler looks at, and has pods that it refused tried again when a
// node can serve them. It never writes to the cluster and never waits for the
// API server while a pod is being placed.
package framework
