// Package simulate plays Moor's safety core in virtual time: the real reconcilers of
// snap-host-controller, snap-controller, snap-external-attacher and snap-node-driver, over
// API servers, SNAP services, a storage and hosts in memory. A seed decides how long each
// call and each watch takes, what fails, and what happens to the machines. A judge
// follows the claims and each write that the storage accepts.
//
// A schedule is a function of its seed and its plan: the same two give the same story.
// A plan whose schedule breaks a rule is made as short as it can be while it still does.
package simulate
