// Command moor-scheduler is kube-scheduler with Moor's plugin in it: its flags,
// configuration and metrics are kube-scheduler's, and the plugin is used by the
// profiles that name it. It has a module of its own because it links Kubernetes,
// of the release that hack/kube/kubernetes pins.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/moor-storage/moor/pkg/scheduler/framework"
)

func main() {
	command := app.NewSchedulerCommand(app.WithPlugin(framework.Name, framework.Factory(legacyregistry.Registerer())))
	command.Use = "moor-scheduler"
	os.Exit(cli.Run(command))
}
