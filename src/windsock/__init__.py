"""Event-driven scheduling for Apache Airflow 3."""
