#!/bin/sh
# Writes the passwords and tokens of the compose deployment into deploy/compose/secrets. If that exists, it fails.
set -eu
cd "$(dirname "$0")"
umask 077
if [ -e secrets ]; then
	echo "deploy/compose/secrets exists; to make new secrets, remove it (and the volumes: docker compose down -v)" >&2
	exit 1
fi
secret() { head -c 24 /dev/urandom | od -An -vtx1 | tr -d ' \n'; }
mkdir secrets
nats=$(secret) access=$(secret) key=$(secret)
cat >secrets/nats.env <<END
NATS_NAME=nats
NATS_PASSWORD=$nats
NATS_ROUTE_1=nats://route:$nats@nats:6222
NATS_ROUTE_2=nats://route:$nats@nats-2:6222
NATS_ROUTE_3=nats://route:$nats@nats-3:6222
END
cat >secrets/s3.env <<END
ROOT_ACCESS_KEY=$access
ROOT_SECRET_KEY=$key
END
cat >secrets/fleet.env <<END
CODEFLEET_NATS_PASSWORD=$nats
CODEFLEET_S3_ACCESS_KEY=$access
CODEFLEET_S3_SECRET_KEY=$key
END
echo "GF_SECURITY_ADMIN_PASSWORD=$(secret)" >secrets/grafana.env
for name in operator default; do secret >secrets/$name.token; done
# The parts run as different users, and each sees only the files that are mounted into it. On this host, only you can
# enter the directory.
chmod 644 secrets/*.token
echo "wrote deploy/compose/secrets; the tenant's token: deploy/compose/secrets/default.token"
