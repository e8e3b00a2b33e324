// Package distribution moves plugins between this machine and OCI registries.
//
// A plugin is an OCI 1.1 artifact with one layer, its module. Signatures and SBOMs refer to it.
// What is pulled is bytes with the right digest: nothing here says that they can be trusted, and
// nothing is compiled or run.
package distribution

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Media types. Config and layer are those of the CNCF's Wasm artifacts.
const (
	ArtifactType = "application/vnd.caponier.plugin.v1+wasm"
	configType   = "application/vnd.wasm.config.v0+json"
	moduleType   = "application/wasm"
	sshType      = "application/vnd.caponier.signature.v1+ssh"
	bundleType   = "application/vnd.dev.sigstore.bundle.v0.3+json"
	spdxType     = "application/spdx+json"
	cycloneType  = "application/vnd.cyclonedx+json"
)

// Bounds of what is read from a registry, in bytes.
const (
	MaxModule    = 16 << 20
	maxManifest  = 256 << 10
	maxSignature = 64 << 10
	MaxSBOM      = 16 << 20
	maxReferrers = 16 // manifests
	maxRedirects = 3
	deadline     = 5 * time.Minute
)

// Options say how a registry is reached. The zero value is anonymous, over TLS.
type Options struct {
	Credential auth.CredentialFunc // nil: none
	CA         []byte              // PEM, beside the system's roots
	PlainHTTP  bool                // only to loopback
	Also       []string            // hosts that the registry may lead to: tokens, storage
	Deadline   time.Duration       // of all together; 0: 5 minutes
}

// About is what the config of an artifact says of its plugin. It is the author's word.
type About struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	Description string   `json:"description"`
	Licence     string   `json:"licence"`
	ABI         string   `json:"abi"` // such as 1.3
	Imports     []string `json:"imports"`
	Tools       []string `json:"tools"`
}

// config is an application/vnd.wasm.config.v0+json.
type config struct {
	Created      string   `json:"created"`
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	LayerDigests []string `json:"layerDigests"`
	Plugin       About    `json:"caponier"`
}

// Artifact is a plugin with what refers to it.
type Artifact struct {
	About      About
	Module     []byte
	Signatures [][]byte // OpenSSH or Sigstore
	SBOMs      [][]byte // SPDX or CycloneDX, in JSON
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// parse reads oci://HOST/REPOSITORY with :TAG or @DIGEST.
func parse(text string) (r registry.Reference, err error) {
	rest, found := strings.CutPrefix(text, "oci://")
	if !found {
		return r, fmt.Errorf("%q is no reference: want oci://HOST/REPOSITORY:TAG or "+
			"oci://HOST/REPOSITORY@sha256:…", text)
	}
	if r, err = registry.ParseReference(rest); err != nil {
		return r, fmt.Errorf("%q is no reference: %w", text, err)
	}
	if strings.Contains(rest, "@") && !digestForm.MatchString(r.Reference) {
		return r, fmt.Errorf("%q: want the digest sha256: and 64 hexadecimal digits", text)
	}
	return r, nil
}

func written(r registry.Reference, digest string) string {
	return "oci://" + r.Registry + "/" + r.Repository + "@" + digest
}

func (o Options) within(ctx context.Context) (context.Context, context.CancelFunc) {
	d := cmp.Or(o.Deadline, deadline)
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("the registry took longer than %s", d))
}

// why adds to an error that a deadline was the cause.
func why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// typeOf is the media type of a signature or SBOM.
func typeOf(data []byte) (string, error) {
	text := strings.TrimSpace(string(data))
	if strings.HasPrefix(text, "-----BEGIN SSH SIGNATURE-----") {
		return sshType, nil
	}
	var seen struct {
		MediaType string `json:"mediaType"`
		SPDX      string `json:"spdxVersion"`
		Cyclone   string `json:"bomFormat"`
	}
	switch err := json.Unmarshal(data, &seen); {
	case err != nil:
		return "", fmt.Errorf("neither an OpenSSH signature nor JSON: %w", err)
	case seen.MediaType == bundleType:
		return bundleType, nil
	case seen.SPDX != "":
		return spdxType, nil
	case seen.Cyclone != "":
		return cycloneType, nil
	}
	return "", errors.New("neither a signature (OpenSSH, Sigstore bundle v0.3) nor an SBOM " +
		"(SPDX, CycloneDX)")
}
