// Package plugins discovers the vendor plugins of a DPU: a plugin registers by
// putting its socket at <root>/<plugin>/dpu.sock, as DPF lays it out.
//
// It follows the kubelet's plugin watcher: sockets are noticed when they appear,
// are replaced or go; each is checked before it is used, and again, with growing
// pauses, as long as the check fails; the end of a plugin's connection is
// noticed at once, and one that hangs within a period. The whole directory is read
// again after each event, so an event that is lost only costs time.
//
// It decides which plugins may be used. It never touches a device.
package plugins
