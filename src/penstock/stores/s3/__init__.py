"""S3's dialect: AWS, the services that speak it (``services``), and the verbs that OSS and GCS share (``driver``)."""
