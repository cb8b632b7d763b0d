// Package events repeats events where users look: those of a vendor's claim in the
// DPU cluster on the DPUVolume, and those of a DPUVolume about its failover on the
// PersistentVolumeClaim and the pods. It decides nothing.
package events
