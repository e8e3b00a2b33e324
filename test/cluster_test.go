package test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caponier-mcp/caponier/test/needs"
	"github.com/caponier-mcp/caponier/test/needs/balancer"
	"go.yaml.in/yaml/v3"
)

// object is what the tests look at in an object of Kubernetes.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Data       map[string]string
	Spec       struct {
		Selector    map[string]any
		ServiceName string `yaml:"serviceName"`
		Ports       []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		Claims []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	Automount      *bool       `yaml:"automountServiceAccountToken"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Security       struct {
		NonRoot bool `yaml:"runAsNonRoot"`
	} `yaml:"securityContext"`
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			Name string `yaml:"secretName"`
		}
	}
}

type container struct {
	Args []string
	Env  []struct{ Name, Value string }

	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Ready struct {
		HTTP struct{ Path, Port string } `yaml:"httpGet"`
	} `yaml:"readinessProbe"`
	Mounts []struct{ Name string } `yaml:"volumeMounts"`

	Security struct {
		Escalate *bool                   `yaml:"allowPrivilegeEscalation"`
		Caps     struct{ Drop []string } `yaml:"capabilities"`
	} `yaml:"securityContext"`
}

const clusterDir = "../examples/cluster/"

// manifests reads kubernetes.yaml, by kind and name.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	data, err := os.ReadFile(clusterDir + "kubernetes.yaml")
	must(t, err)
	all := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		id := o.Kind + " " + o.Metadata.Name
		if _, twice := all[id]; twice || o.APIVersion == "" || o.Metadata.Name == "" {
			t.Errorf("%q is there twice, or lacks a name", id)
		}
		all[id] = o
	}
}

// Everything that an object names exists, or is created by a command of the README. Its pods have
// only the rights that they need.
func TestTheManifestsOfAClusterFitTogether(t *testing.T) {
	all := manifests(t)
	readme, err := os.ReadFile(clusterDir + "README.md")
	must(t, err)
	made := func(kind, command, name string) bool {
		_, is := all[kind+" "+name]
		return is || strings.Contains(string(readme), command+" "+name+" ")
	}
	for id, o := range all {
		p := o.Spec.Template.Spec
		if len(p.Containers) == 0 {
			continue
		}
		if o.Spec.ServiceName != "" && !made("Service", "-", o.Spec.ServiceName) {
			t.Errorf("%s: there is no service %s", id, o.Spec.ServiceName)
		}
		var volumes []string
		for _, v := range p.Volumes {
			volumes = append(volumes, v.Name)
			if v.ConfigMap.Name != "" && !made("ConfigMap", "configmap", v.ConfigMap.Name) ||
				v.Secret.Name != "" && !made("Secret", "secret generic", v.Secret.Name) {
				t.Errorf("%s: nobody makes what volume %s is of", id, v.Name)
			}
		}
		for _, v := range o.Spec.Claims {
			volumes = append(volumes, v.Metadata.Name)
		}
		if !p.Security.NonRoot || p.Automount == nil || *p.Automount {
			t.Errorf("%s: its pods may be root, or have a token of the cluster", id)
		}
		for _, c := range slices.Concat(p.InitContainers, p.Containers) {
			if !slices.Equal(c.Security.Caps.Drop, []string{"ALL"}) || c.Security.Escalate == nil ||
				*c.Security.Escalate {
				t.Errorf("%s: a container has capabilities", id)
			}
			for _, m := range c.Mounts {
				if !slices.Contains(volumes, m.Name) {
					t.Errorf("%s: there is no volume %s", id, m.Name)
				}
			}
		}
	}
	host := all["StatefulSet caponier"].Spec.Template.Spec.Containers[0]
	ports := all["Service caponier"].Spec.Ports
	if len(ports) != 1 || len(host.Ports) != 1 || ports[0].Port != host.Ports[0].Port ||
		host.Ready.HTTP.Path != "/ready" || host.Ready.HTTP.Port != host.Ports[0].Name ||
		!slices.Equal(host.Args, []string{"serve", "--http", "0.0.0.0:8642"}) {
		t.Errorf("the host serves %v %v, its service %v, and is ready at %+v", host.Args,
			host.Ports, ports, host.Ready)
	}
}

// Both hosts have the same configuration in both forms, and the balancer has the configuration of
// the page.
func TestAClusterHasTheConfigurationOfThePage(t *testing.T) {
	all, page := manifests(t), balancer.Config(t, "../docs/scale.md")
	file := func(name string) string {
		data, err := os.ReadFile(clusterDir + name)
		must(t, err)
		return string(data)
	}
	if file("haproxy.cfg") != page {
		t.Error("haproxy.cfg is another than that of docs/scale.md")
	}
	if all["ConfigMap caponier"].Data["config.toml"] != file("config.toml") {
		t.Error("kubernetes.yaml has another config.toml")
	}
	inPods := all["ConfigMap balancer"].Data["haproxy.cfg"]
	if got := strings.NewReplacer("resolvers cluster\n    parse-resolv-conf\n    hold valid 5s\n\n",
		"", " resolvers cluster init-addr none", "", "caponier-0.caponier:", "10.0.0.11:",
		"caponier-1.caponier:", "10.0.0.12:", ":8443", ":443").Replace(inPods); got != page {
		t.Errorf("kubernetes.yaml has another haproxy.cfg:\n%s", got)
	}
	if _, err := os.Stat("/usr/sbin/haproxy"); err != nil {
		needs.Skip(t, "HAProxy is not installed")
	}
	cfg := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(cfg, []byte(strings.Replace(inPods, "ssl crt /etc/haproxy/caponier.pem",
		"", 1)), 0o600))
	if out, err := exec.Command("/usr/sbin/haproxy", "-c", "-f", cfg).CombinedOutput(); err != nil {
		t.Errorf("HAProxy does not take that of kubernetes.yaml: %v\n%s", err, out)
	}
}

// Both hosts come up with that configuration and environment, and share the database.
func TestTheHostsOfAClusterStart(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Command     []string
			Hostname    string
			Environment map[string]string
			Networks    map[string]map[string]string
			Secrets     []string
		}
		Secrets map[string]struct{ File string }
	}
	data, err := os.ReadFile(clusterDir + "compose.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(data, &compose))
	config, err := os.ReadFile(clusterDir + "config.toml")
	must(t, err)
	w := newTwoHosts(t, nil)
	pods := map[string]string{}
	for _, e := range manifests(t)["StatefulSet caponier"].Spec.Template.Spec.Containers[0].Env {
		pods[e.Name] = e.Value
	}
	for name, env := range map[string]map[string]string{"a": compose.Services["a"].Environment,
		"b": compose.Services["b"].Environment, "pods": pods} {
		if env["CAPONIER_STORE_URL"] == "" {
			t.Fatalf("%s has no database: %v", name, env)
		}
		dir := t.TempDir()
		text := strings.NewReplacer("/var/lib/caponier", filepath.Join(dir, "state"),
			"/run/secrets", dir, "/etc/caponier/policies/site", filepath.Join(w.a.dir, "site"),
			"/etc/caponier/plugins.lock", filepath.Join(w.a.dir, "plugins.lock"),
			"/etc/caponier/build/plugins", filepath.Join(w.a.dir, "plugins"),
			`"agent-a"`, `"demo"`).Replace(string(config))
		must(t, os.Mkdir(filepath.Join(dir, "state"), 0o700))
		key := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
			filepath.Join(dir, "ssh_key"))
		if out, err := key.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		must(t, os.WriteFile(filepath.Join(dir, "store"), []byte("a password"), 0o400))
		s := &site{dir: dir, config: filepath.Join(dir, "config.toml"), lab: w.a.lab}
		must(t, os.WriteFile(s.config, []byte(text), 0o600))
		for k := range env {
			if k != "CAPONIER_STORE_URL" {
				t.Setenv(k, env[k])
			}
		}
		t.Setenv("CAPONIER_STORE_URL", w.server.URL(w.database))
		url := s.serveHTTP(t)
		req, err := http.NewRequest("GET", url+"/ready", nil)
		must(t, err)
		req.Host = "localhost"
		res, err := http.DefaultClient.Do(req)
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s is not ready: %s", name, res.Status)
		}
		if req.Host = "caponier.example.org"; name == "a" {
			res, err := http.DefaultClient.Do(req)
			must(t, err)
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s does not know the name of the balancer: %s", name, res.Status)
			}
		}
		if out := w.a.runs(t, "cluster", "status"); !strings.Contains(out, filepath.Base(dir)) {
			t.Errorf("%s does not share the database:\n%s", name, out)
		}
	}
	addresses := ""
	for _, name := range []string{"a", "b"} {
		s := compose.Services[name]
		addresses += s.Networks["inner"]["ipv4_address"] + " "
		if s.Hostname != name || !slices.Equal(s.Command, []string{"serve", "--http",
			"0.0.0.0:8642"}) {
			t.Errorf("%s is %+v", name, s)
		}
		for _, secret := range s.Secrets {
			if compose.Secrets[secret].File == "" {
				t.Errorf("%s: secret %s is nowhere", name, secret)
			}
		}
	}
	if addresses != "10.0.0.11 10.0.0.12 " {
		t.Errorf("the hosts are at %s", addresses)
	}
}
