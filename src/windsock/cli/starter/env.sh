# The project's settings. In each new terminal, in this directory: . ./env.sh
if [ ! -f "$PWD/env.sh" ]; then
    echo "env.sh: change into the project's directory first, then: . ./env.sh" >&2
    return 1
fi
export AIRFLOW_HOME="$PWD/airflow"
export AIRFLOW__CORE__DAGS_FOLDER="$PWD/dags"
export AIRFLOW__CORE__LOAD_EXAMPLES=False
export AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=False
export AIRFLOW__CORE__PARALLELISM=4
# Look for new and changed Dags every ten seconds. In production Airflow's defaults are wiser.
export AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL=10
export AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL=10

# Everybody is an administrator, so only this machine may call. PORT=9000 . ./env.sh takes another port.
export AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS=True
export AIRFLOW__API__HOST=127.0.0.1
export AIRFLOW__API__PORT="${PORT:-8080}"
export AIRFLOW__API__BASE_URL="http://127.0.0.1:$AIRFLOW__API__PORT"

# The Connection `shop` holds the secret that signs webhooks. It is made once and kept out of git.
[ -f .secret ] || (umask 077 && python3 -c 'import secrets; print(secrets.token_hex(24))' > .secret)
SHOP_SECRET="$(cat .secret)"
export SHOP_SECRET
export AIRFLOW_CONN_SHOP="{\"conn_type\": \"windsock_webhook\", \"password\": \"$SHOP_SECRET\"}"
