#!/bin/sh
# spark-submit in cluster mode: Spark makes the driver's pod, and nothing starts it again. Run it where driver-pod.yaml and executor-pod.yaml
# lie. Needs rbac.yaml and checkpoints.yaml in the namespace. Change address, namespace, image, names, paths and sizes.
exec spark-submit \
    --master k8s://https://kubernetes.example.com:6443 --deploy-mode cluster --name orders \
    --conf spark.kubernetes.namespace=default \
    --conf spark.kubernetes.container.image=registry.example.com/orders:1.0 \
    --conf spark.kubernetes.authenticate.driver.serviceAccountName=orders \
    --conf spark.kubernetes.driver.podTemplateFile=driver-pod.yaml \
    --conf spark.kubernetes.executor.podTemplateFile=executor-pod.yaml \
    --conf spark.kubernetes.submission.waitAppCompletion=false \
    --conf spark.executor.instances=2 --conf spark.executor.cores=2 --conf spark.executor.memory=2g \
    --conf spark.authenticate=true --conf spark.network.crypto.enabled=true --conf spark.ui.enabled=false \
    --conf spark.streaming.stopGracefullyOnShutdown=true \
    --conf spark.streaming.kstream.ui.enabled=true \
    --conf spark.streaming.kstream.metrics.port=9404 --conf spark.streaming.kstream.metrics.host=0.0.0.0 \
    local:///opt/orders/main.py run /opt/orders/job.py:setup --checkpoint /checkpoints/orders
