# moor-scheduler, kube-scheduler with Moor's plugin, and the licences of what it links. From the root of the checkout: make image-scheduler
FROM docker.io/library/golang:1.26-bookworm AS build
WORKDIR /src
COPY . .
RUN LDFLAGS="-s -w" hack/scheduler.sh /out
RUN hack/licenses.sh save /licenses moor-scheduler

FROM docker.io/library/debian:bookworm-slim
COPY --from=build /licenses/ /usr/share/doc/moor/licenses/
COPY --from=build /out/ /usr/local/bin/
USER 65532:65532
