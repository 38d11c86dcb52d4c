"""The only package that knows py4j and pyspark's internals. It implements the ports of the scheduler, the streams and the receivers.

One idea: all use of pyspark's private parts is here and nowhere else, so that a new Spark version breaks one package.

    spark_context       makes a SparkContext, and pickles functions of the user
    submit_args         the options of spark-submit for the JVM of this process, and its progress bar
    platforms           what runs on managed platforms, and the refusal of Spark Connect
    workers_python      the Python that the workers run
    executor_check      asks the executors before the first batch whether they can run the tasks of a job
    executor_questions  what `kstream doctor` asks each of them about checkpoint and brokers
    active_session      the SparkSession of a thread
    java                finds a Java that Spark can run on
    jvm_watch           the end of Spark's JVM is the end of the context
    java_gateway        the JVM that this process calls, in a driver and in a worker
    job_environment     what Spark knows of a job thread, and which jobs a batch has in Spark's own UI
    task_errors         the user's exception, for Spark's error of a task
    jvm_log             Spark's log without the traces of failed tasks
    broadcast_files     the files of broadcast variables are removed when Spark has let go of the variables
    rdd_placement       Spark's pages show RDDs at the user's calls of operators
    worker_rdd          WorkerRDD: an RDD whose partitions Python workers make
    state_rdds          RDDs of the states of mapWithState
    executors           the executors, and the cores of receivers; asks the cluster manager for executors, and ends them
    receiver_runner     receivers and block stores as tasks of Spark
    continuous_tasks    the tasks of continuous processing as jobs of Spark, and the port of the driver for them
    receivers           opens the received blocks of a context; received blocks as RDDs
    checkpoint_store    opens a checkpoint by its URL
    hadoop_file_store   checkpoints on HDFS, and on what else Hadoop's client reaches
    hadoop_directory    watched directories there
    shutdown            SIGTERM stops the context
"""
