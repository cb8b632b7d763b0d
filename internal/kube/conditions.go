package kube

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Conditions is a list of conditions being built for one generation.
type Conditions struct {
	// List is the status field.
	List *[]metav1.Condition
	// Generation of the object that they speak of.
	Generation int64
}

// True sets a condition to True with reason Success and no message.
func (c Conditions) True(kind string) {
	c.set(kind, metav1.ConditionTrue, storagev1alpha1.ReasonSuccess, "")
}

// False sets a condition to False, with the reason and what is waited for.
func (c Conditions) False(kind, reason, message string) {
	c.set(kind, metav1.ConditionFalse, reason, message)
}

// Whether sets a condition to True, or else to False and Pending, with what is
// waited for.
func (c Conditions) Whether(kind string, ok bool, message string) {
	if ok {
		c.True(kind)
		return
	}
	c.False(kind, storagev1alpha1.ReasonPending, message)
}

// Reconciled sets the condition that says how a pass went: it failed, it waits
// for something, or it has done what there is to do.
func (c Conditions) Reconciled(kind string, outcome Outcome) {
	if outcome.Err != nil {
		c.False(kind, storagev1alpha1.ReasonError, outcome.Message)
		return
	}
	c.Whether(kind, outcome.Message == "", outcome.Message)
}

// Init adds the conditions that are missing, as Unknown and Pending.
func (c Conditions) Init(kinds ...string) {
	for _, k := range kinds {
		if meta.FindStatusCondition(*c.List, k) == nil {
			c.set(k, metav1.ConditionUnknown, storagev1alpha1.ReasonPending, "")
		}
	}
}

func (c Conditions) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(c.List, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: c.Generation,
	})
}

// Summarize sets the condition summary from the others named: True if all
// are; else False with the gravest reason (AwaitingDeletion, Failure, Pending)
// and the names and messages of those that are not True.
func (c Conditions) Summarize(summary string, of ...string) {
	worst, missing := storagev1alpha1.ReasonPending, []string{}
	for _, kind := range of {
		cond := meta.FindStatusCondition(*c.List, kind)
		if cond != nil && cond.Status == metav1.ConditionTrue {
			continue
		}
		one := kind
		if cond != nil {
			if gravity[cond.Reason] > gravity[worst] {
				worst = cond.Reason
			}
			if cond.Message != "" {
				one += ": " + cond.Message
			}
		}
		missing = append(missing, one)
	}
	if len(missing) == 0 {
		c.True(summary)
		return
	}
	c.False(summary, worst, "not ready: "+strings.Join(missing, "; "))
}

var gravity = map[string]int{storagev1alpha1.ReasonPending: 1, storagev1alpha1.ReasonFailure: 2, storagev1alpha1.ReasonAwaitingDeletion: 3}
