// Package podresync makes a kubelet look again, at once, at a pod that it leaves alone.
//
// A kubelet that is told of a new pod asks for its claims. Now and then it is
// faster than the API server's node authorizer, which does not know yet that the
// pod is bound to that node, and is refused. It then leaves the pod alone for 10
// to 15 s (backOffPeriod and its jitter in Kubernetes' pkg/kubelet/pod_workers.go),
// longer than all the rest of a failover. Where hosts ask for their volumes by
// themselves it is plain which kubelet sleeps: its pod has a bound claim, and its
// host has not asked for the volume. Where Kubernetes asks, the kubelet's own event is
// taken for it.
//
// Nor does a kubelet watch claims. That the volume of a pod that runs has grown it
// sees when it looks at the pod next, once in a minute, and only then has its
// node let the file system grow.
//
// A change of the pod's annotations makes it look at once. To wake a kubelet that
// is awake does nothing.
package podresync
