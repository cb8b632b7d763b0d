// Package deadmount brings pods back whose mount of a volume is of no use any more, as
// their hosts tell in status.host.deadMounts of their DPUStorageNodes. The containers of a
// pod keep its mounts when they are started again, so such a pod fails for ever; one that
// is made anew has the volume mounted anew. So the pods that a controller makes anew are
// deleted, in order, a bounded number of times; of all others it is told.
//
// It never deletes by force, nor a pod that does not use the volume on that host.
package deadmount
