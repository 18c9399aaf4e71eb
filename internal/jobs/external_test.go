package jobs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// The client works with an external server that has TLS with a private authority, and users by JWT.
func TestExternalNATS(t *testing.T) {
	cert, authority := certificate(t)
	creds, accounts := operator(t)
	srv := startServer(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(),
		TLSConfig:        &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}},
		TrustedOperators: accounts.operators, AccountResolver: accounts.resolver, SystemAccount: accounts.system,
	})
	trusting := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority}
	options := func(credentials Credentials, conf *tls.Config) Options {
		return Options{Server: Server{URL: srv.ClientURL(), TLS: conf}, Credentials: credentials}
	}
	submitsTask(t, options(Credentials{CredsFile: creds}, trusting))
	refused(t, options(Credentials{CredsFile: creds}, nil), "certificate")
	refused(t, options(Credentials{}, trusting), "Authorization Violation")
	refused(t, options(Credentials{CredsFile: filepath.Join(t.TempDir(), "none.creds")}, trusting), "none.creds")
}

func TestExternalNATSWithNKey(t *testing.T) {
	user, seed := nkey(t, nkeys.CreateUser)
	file := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := startServer(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(), Nkeys: []*server.NkeyUser{{Nkey: user}},
	})
	at := Server{URL: srv.ClientURL()}
	submitsTask(t, Options{Server: at, Credentials: Credentials{NKeyFile: file}})
	refused(t, Options{Server: at, Credentials: Credentials{User: "unknown", Password: "wrong"}},
		"Authorization Violation")
}

// submitsTask checks that a client with these options can create the streams and submit a task.
func submitsTask(t *testing.T, o Options) {
	t.Helper()
	o.Log = noLog
	c, err := Connect(t.Context(), o)
	if err != nil {
		t.Fatalf("Connect = %v, want nil", err)
	}
	defer c.Close()
	if err := c.Provision(t.Context()); err != nil {
		t.Fatalf("Provision = %v, want nil", err)
	}
	rec, err := c.Submit(t.Context(), "acme", taskEvent("1", `{"code":"1"}`))
	if err != nil || rec.Status != "queued" {
		t.Errorf("Submit = %+v, %v, want it queued", rec, err)
	}
}

// refused checks that Connect returns an error that contains want.
func refused(t *testing.T, o Options, want string) {
	t.Helper()
	o.Log = noLog
	c, err := Connect(t.Context(), o)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Connect = %v, want an error with %q", err, want)
	}
}

// certificate returns a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) {
		t.Fatal("no certificate")
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// accounts are an operator's accounts in the form of a server's options.
type accounts struct {
	operators []*jwt.OperatorClaims
	resolver  server.AccountResolver
	system    string
}

// operator creates an operator with a system account and a JetStream account, and the credentials of a user of the
// JetStream account.
func operator(t *testing.T) (creds string, out accounts) {
	t.Helper()
	operatorKey, operatorSeed := nkey(t, nkeys.CreateOperator)
	systemKey, _ := nkey(t, nkeys.CreateAccount)
	accountKey, accountSeed := nkey(t, nkeys.CreateAccount)
	userKey, userSeed := nkey(t, nkeys.CreateUser)
	signer, err1 := nkeys.FromSeed(operatorSeed)
	accountSigner, err2 := nkeys.FromSeed(accountSeed)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	claims := jwt.NewOperatorClaims(operatorKey)
	claims.SystemAccount = systemKey
	account := jwt.NewAccountClaims(accountKey)
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	for key, c := range map[string]*jwt.AccountClaims{accountKey: account, systemKey: jwt.NewAccountClaims(systemKey)} {
		token, err := c.Encode(signer)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolver.Store(key, token); err != nil {
			t.Fatal(err)
		}
	}
	token, err := jwt.NewUserClaims(userKey).Encode(accountSigner)
	if err != nil {
		t.Fatal(err)
	}
	file, err := jwt.FormatUserConfig(token, userSeed)
	if err != nil {
		t.Fatal(err)
	}
	creds = filepath.Join(t.TempDir(), "user.creds")
	if err := os.WriteFile(creds, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return creds, accounts{[]*jwt.OperatorClaims{claims}, resolver, systemKey}
}

func nkey(t *testing.T, create func() (nkeys.KeyPair, error)) (public string, seed []byte) {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err1 := pair.PublicKey()
	seed, err2 := pair.Seed()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return public, seed
}
