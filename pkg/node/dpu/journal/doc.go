// Package journal is what one DPU remembers, outside of any cluster, of the epochs
// under which it has shown volumes and of those that it has retired.
//
// The API says the same, but its etcd can be restored from a backup, and then tells
// of an epoch that is over as if it were not. The journal is a file, written and
// synced before a volume is shown; it survives restarts and reboots. It only ever
// refuses: nothing is shown, freed or withdrawn because of what it does not hold.
package journal
