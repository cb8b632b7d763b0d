// Package dpudrain drains a DPU that a person wants to reboot, for as long as spec.drain
// of its DPUStorageNode is set: it evicts the pods of the host that use volumes, within
// their PodDisruptionBudgets, and says in the condition Drained what is still there, and
// when nothing can be written through the DPU any more.
//
// decide.go judges what was found, find.go finds it, evict.go evicts. What was begun stands
// in the objects alone, so that any instance goes on from there. Nothing is forced.
package dpudrain
