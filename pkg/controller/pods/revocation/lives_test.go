package revocation

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestAttach: a request of a volume of a PavProvisioner is attached at once, after it is held; that of another driver, or of no
// volume that it names, is left alone.
func TestAttach(t *testing.T) {
	s := newFixture(t)
	if sv := s.asked(); !sv.Status.Attached || len(sv.Finalizers) != 1 {
		t.Errorf("%+v", sv)
	}
	other, pv := request(), kubetest.VendorPV("other", "c", "x.csi", corev1.PersistentVolumeReclaimDelete)
	s.Remove(s.asked())
	s.settle()
	other.Spec.Source.PersistentVolumeName = &pv.Name
	s.Add(pv, other)
	writes := s.Writes()
	s.settle()
	if sv := s.asked(); sv.Status.Attached || len(sv.Finalizers) > 0 || s.Writes() != writes {
		t.Errorf("another driver's: %+v", sv)
	}
	s.Remove(s.asked())
	nameless := request()
	nameless.Spec.Source.PersistentVolumeName = nil
	s.Add(nameless)
	writes = s.Writes()
	s.settle()
	if sv := s.asked(); sv.Status.Attached || len(sv.Finalizers) > 0 || s.Writes() != writes {
		t.Errorf("of no volume: %+v", sv)
	}
}

// TestReceipt: the pod runs elsewhere, knows whom and what it is about, and its success is the word of the storage.
func TestReceipt(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "hang"
	s.settle()
	s.wantNone("the revocation pod default/pav-volume-revocation-pod-")
	pod := s.helpers()[0]
	if got := strings.Join(pod.Spec.Containers[0].Args, " "); got != "handle-pvc-1 "+string(kubetest.AttachmentUID(attachment))+" 7 dpu-1 7" {
		t.Errorf("it is told %q", got)
	}
	if terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 1 || terms[0].MatchFields[0].Values[0] != dpu || len(pod.Spec.Volumes) > 0 {
		t.Errorf("%+v", pod.Spec)
	}
	if p, _ := kubetest.Read(s.Cluster, &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "staging"}}); p.Status.RevokedFor != kubetest.AttachmentUID(attachment) {
		t.Errorf("more may be staged: %+v", p.Status)
	}
	s.Events()
	s.does = "ok"
	s.settle()
	s.wantWord()
	if events := s.Events(); len(events) != 1 || !strings.Contains(events[0], "the storage accepts nothing more of volume pvc-1 from DPU dpu-1 (epoch 7)") {
		t.Errorf("%q", events)
	}
}

// TestNotNeeded: where no word of the storage is needed, the request goes at once, without a pod and without a word.
func TestNotNeeded(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"the DPU has let go": func(s *fixture) {
			kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
				a.Finalizers, a.Status.DPU.Attached = []string{storagev1alpha1.FinalizerWriterClaim}, false
			})
		},
		"the DPU has retired the epoch": func(s *fixture) {
			kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
				a.Status.DPU.RetiredEpoch, a.Status.DPU.Attached = 7, false
			})
		},
		"the claim is free": func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFree })
		},
		"the claim is another's": func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Holder = "dpu-2" })
		},
		"the claim is an earlier attachment's": func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "earlier" })
		},
		"the claim is of another epoch": func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Epoch = 8 })
		},
		"there is no claim": func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
			s.Remove(s.claim())
		},
		"nothing waits for it": func(s *fixture) {
			kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
				a.Finalizers = []string{storagev1alpha1.FinalizerDPUAttachment}
			})
		},
		"the vendor may be asked again": func(s *fixture) {
			kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.StorageDetaching = false })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).taken()
			change(s)
			s.settle()
			if w := s.attachment().Status.Revocation; w != nil || s.made > 0 {
				t.Errorf("%d pods, and the word %+v", s.made, w)
			}
			s.wantNothingLeft()
		})
	}
}

// TestNotNeededAsksLittle: where the storage has nothing to say, what stands behind the volume is not read: it mostly is not
// needed.
func TestNotNeededAsksLittle(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		reads  int // with that of a PodRevocation that would be left
	}{
		"the attachment is gone": {func(s *fixture) {
			kubetest.Change(s.Cluster, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Finalizers = nil })
		}, 2},
		"the claim is free": {func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFree })
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).taken()
			tc.change(s)
			reads := s.LiveReads()
			if err := s.pass(); err != nil {
				t.Fatal(err)
			}
			if n := s.LiveReads() - reads; n != tc.reads {
				t.Errorf("the API server was read %d times", n)
			}
			s.wantNothingLeft()
		})
	}
}

// TestNoReceipt: whatever a pod comes to but its success elsewhere is no word of the storage, and a person is told.
func TestNoReceipt(t *testing.T) {
	for does, words := range map[string]string{
		"fail": "container c ended with exit code 3", "vanish": "was deleted by another", "evicted": "was evicted", "taken": "was deleted by another before its end was seen",
		"here": "is on node dpu-1, which it must not run on",
	} {
		t.Run(does, func(t *testing.T) {
			s := newFixture(t).taken()
			s.does = does
			s.settle()
			s.wantNone(words)
			s.wantNone("kubectl annotate podrevocation")
			if s.made != 1 {
				t.Errorf("%d pods were made", s.made)
			}
			if does == "taken" {
				return // the fixture keeps the pod
			}
			if events := strings.Join(s.Events(), "\n"); !strings.Contains(events, "RevocationFailed") || !strings.Contains(events, words) {
				t.Errorf("%q", events)
			}
			s.does = "ok"
			s.retry("1")
			s.settle()
			s.wantWord()
		})
	}
}

// retry asks for another try of the PodRevocation that is there.
func (s *fixture) retry(value string) {
	s.t.Helper()
	kubetest.Change(s.Cluster, &s.all()[0], func(r *moorv1alpha1.PodRevocation) {
		r.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: value}
	})
}

// TestRetry: each value of the annotation is one try, with a pod of a name of its own.
func TestRetry(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "fail"
	s.settle()
	names := map[string]bool{s.all()[0].Status.Pod.Name: true}
	for _, value := range []string{"1", "2"} {
		s.retry(value)
		s.settle()
		s.wantNone("exit code 3")
		names[s.all()[0].Status.Pod.Name] = true
		made := s.made
		s.settle()
		if s.made != made {
			t.Error("it was tried again at once")
		}
	}
	if len(names) != 3 || s.made != 3 {
		t.Errorf("%d pods of the names %v", s.made, names)
	}
}

// TestRetriedByItself: a storage that cannot be told is told again, each time later, by a pod of its own name, until
// it has taken it.
func TestRetriedByItself(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "fail"
	s.settle()
	names := map[string]bool{s.all()[0].Status.Pod.Name: true}
	for n, pause := range []time.Duration{5 * time.Second, 10 * time.Second} {
		s.wantNone("exit code 3")
		s.Step(pause - time.Second)
		if s.settle(); s.made != n+1 {
			t.Error("it was told again too soon")
		}
		s.Step(time.Second)
		if s.settle(); s.made != n+2 {
			t.Errorf("%d pods", s.made)
		}
		names[s.all()[0].Status.Pod.Name] = true
	}
	if len(names) != 3 {
		t.Errorf("the names are %v", names)
	}
	s.does = "ok"
	s.Step(20 * time.Second)
	s.settle()
	s.wantWord()
}

// TestNeverStarts: a pod that cannot run fails after its time, and says for what it waited.
func TestNeverStarts(t *testing.T) {
	s := newFixture(t).taken()
	s.does = "hang"
	s.settle()
	s.Step(61 * time.Second)
	s.settle()
	s.wantNone("has not ended within 1m0s: it is not scheduled")
}

// TestWaits: what has to be known, or over, before the storage is asked.
func TestWaits(t *testing.T) {
	stagingOf := func() *moorv1alpha1.PodStaging {
		return &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "staging"}}
	}
	for name, tt := range map[string]struct {
		change func(*fixture)
		words  string
		mend   func(*fixture)
	}{
		"its right to write is not being taken": {func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimGranted })
		}, "its right to write is not being taken", func(s *fixture) {
			kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
		}},
		"the provisioner revokes no more": {func(s *fixture) {
			kubetest.Change(s.Cluster, &pavv1alpha1.PavProvisioner{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, func(p *pavv1alpha1.PavProvisioner) {
				p.Spec.VolumeRevocation = nil
				p.Generation++
			})
		}, "PavProvisioner p has no volumeRevocation any more, so the storage cannot be asked", nil},
		"the volume is of no driver": {func(s *fixture) {
			kubetest.Change(s.Cluster, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName}}, func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil })
		}, "PersistentVolume pvc-1 is gone, so the storage cannot be asked", nil},
		"the volume is gone": {func(s *fixture) { s.Remove(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvName}}) }, "PersistentVolume pvc-1 is gone", nil},
		"it is being staged": {
			func(s *fixture) {
				kubetest.Change(s.Cluster, stagingOf(), func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingStaging })
			}, "PodStaging staging on DPU dpu-1 is under way",
			func(s *fixture) {
				kubetest.Change(s.Cluster, stagingOf(), func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingStaged })
			},
		},
		"it was asked to be staged": {
			func(s *fixture) {
				kubetest.Change(s.Cluster, stagingOf(), func(p *moorv1alpha1.PodStaging) { p.Status.Phase = "" })
			}, "PodStaging staging on DPU dpu-1 is under way",
			func(s *fixture) {
				kubetest.Change(s.Cluster, stagingOf(), func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingFailed })
			},
		},
		"a staging pod runs": {
			func(s *fixture) {
				kubetest.Change(s.Cluster, stagingOf(), func(p *moorv1alpha1.PodStaging) { p.Status.Phase = moorv1alpha1.PodStagingReverting })
				s.Add(s.stagingPod("staging", "sp", corev1.PodRunning, s.Clock.Now().Add(-time.Hour)))
			}, "staging pod default/sp on DPU dpu-1 has not ended",
			func(s *fixture) {
				s.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "sp"}})
			},
		},
		"it is staged for an earlier attachment": {
			func(s *fixture) { s.Add(s.staging("other", "earlier", moorv1alpha1.PodStagingStaged)) }, "PodStaging other on DPU dpu-1 is for VolumeAttachment",
			func(s *fixture) { s.Remove(&moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "other"}}) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t).taken()
			tt.change(s)
			s.settle()
			if s.wantNone(tt.words); s.made > 0 {
				t.Errorf("%d pods were made", s.made)
			}
			if tt.mend != nil {
				tt.mend(s)
				s.settle()
				s.wantWord()
			}
		})
	}
}

// TestNothingIsStaged: what an earlier attachment has left of a staging that failed, or is undone, is waited for by none; nor
// is the staging of another volume.
func TestNothingIsStaged(t *testing.T) {
	for _, phase := range []moorv1alpha1.PodStagingPhase{moorv1alpha1.PodStagingFailed, moorv1alpha1.PodStagingUnstaged, moorv1alpha1.PodStagingStaging} {
		s := newFixture(t).taken()
		other := s.staging("other", "earlier", phase)
		if phase == moorv1alpha1.PodStagingStaging {
			other.Spec.VolumeName = "pvc-2"
		}
		s.Add(other)
		s.settle()
		s.wantWord()
	}
}

// TestRunsOn: a staging pod that has said that it has staged, and runs on, is waited for by none: its DPU does not answer.
func TestRunsOn(t *testing.T) {
	s := newFixture(t)
	pod := s.stagingPod("staging", "sp", corev1.PodRunning, s.Clock.Now().Add(-time.Hour))
	s.Add(pod)
	kubetest.Change(s.Cluster, &moorv1alpha1.PodStaging{ObjectMeta: metav1.ObjectMeta{Name: "staging"}}, func(p *moorv1alpha1.PodStaging) {
		p.Status.Report = &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: pod.UID, Ready: true}}
	})
	s.taken().settle()
	s.wantWord()
}

// TestOtherReceipt: once another receipt has freed the claim, the storage is asked no more, and nothing is left.
func TestOtherReceipt(t *testing.T) {
	for _, does := range []string{"hang", "fail"} {
		s := newFixture(t).taken()
		s.does = does
		s.settle()
		kubetest.Change(s.Cluster, s.claim(), func(c *moorv1alpha1.WriterClaim) {
			c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.AttachmentUID = moorv1alpha1.ClaimFree, "", "", types.UID("")
		})
		s.settle()
		if s.attachment().Status.Revocation != nil {
			t.Errorf("%s: there is a word", does)
		}
		s.wantNothingLeft()
	}
}

// TestCrash loses each write in turn, with and without effect, and goes on with an instance that remembers nothing: it comes
// to the same, and leaves nothing behind.
func TestCrash(t *testing.T) {
	for name, first := range map[string]string{"it succeeds": "ok", "it fails, and is tried again": "fail"} {
		t.Run(name, func(t *testing.T) {
			for _, late := range []bool{false, true} {
				for k := 1; ; k++ {
					s := newFixture(t).taken()
					s.does = first
					s.LoseWrite(k, late)
					lost := s.settle()
					if first == "fail" {
						s.does = "ok"
						s.retry("1")
						lost = s.settle() || lost
					}
					s.wantWord()
					if !lost {
						if k < 8 {
							t.Errorf("only %d writes were lost", k-1)
						}
						break
					}
				}
			}
		})
	}
}
