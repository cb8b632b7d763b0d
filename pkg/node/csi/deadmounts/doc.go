// Package deadmounts finds the mounts of pods that are of no use any more: their device
// is gone or another one, or the kernel has given their file system up. Nothing else
// notices: the pod runs or crashes, and its mount stays.
//
// It keeps nothing on disk. Which mounts are pods' is read from the mount table, and of
// which volume from what the kubelet keeps beside them.
//
// Its reads of the devices also serve as a sign of life, when one is asked for.
package deadmounts
